"""Reports: pictures of solutions. matplotlib (the extra ``plot``) is loaded when a picture is drawn, not before."""

from optsched.report.answers import SolutionFile
from optsched.report.front import FrontLines, front_picture
from optsched.report.gantt import rounds_gantt, schedule_gantt
from optsched.report.gantt_rows import GanttRows
from optsched.report.heatmap import HeatmapRows, allocation_heatmap, heatmap_rows
from optsched.report.model_errors import evaluation_picture
from optsched.report.pictures import save_picture
from optsched.report.prices import PriceBars, price_bars
from optsched.report.progress import ProgressLines, ProgressRecorder, progress_picture
from optsched.report.topology import topology_picture
from optsched.report.topology_cells import TopologyCells
from optsched.report.traces import arrivals_picture, durations_picture, gangs_picture, load_picture, trace_page

__all__ = [
    "FrontLines",
    "GanttRows",
    "HeatmapRows",
    "PriceBars",
    "ProgressLines",
    "ProgressRecorder",
    "SolutionFile",
    "TopologyCells",
    "allocation_heatmap",
    "arrivals_picture",
    "durations_picture",
    "evaluation_picture",
    "front_picture",
    "gangs_picture",
    "heatmap_rows",
    "load_picture",
    "price_bars",
    "progress_picture",
    "rounds_gantt",
    "save_picture",
    "schedule_gantt",
    "topology_picture",
    "trace_page",
]
