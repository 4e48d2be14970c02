"""Reports: pictures of solutions. matplotlib (the extra ``plot``) is loaded when a picture is drawn, not before."""

from optsched.report.heatmap import HeatmapRows, allocation_heatmap, heatmap_rows
from optsched.report.pictures import save_picture

__all__ = ["HeatmapRows", "allocation_heatmap", "heatmap_rows", "save_picture"]
