"""Reports: pictures of solutions, traces and simulations;
matplotlib is imported only when a picture is drawn.
"""

from optsched.report.answers import SolutionFile
from optsched.report.front import FrontLines, front_picture
from optsched.report.gantt import GanttRows, rounds_gantt, schedule_gantt
from optsched.report.gpu_gantt import gpu_gantt_picture
from optsched.report.heatmap import HeatmapRows, allocation_heatmap, heatmap_rows
from optsched.report.model_errors import evaluation_picture
from optsched.report.pictures import save_picture
from optsched.report.prices import PriceBars, price_bars
from optsched.report.progress import ProgressLines, ProgressRecorder, progress_picture
from optsched.report.simulation_page import (
    simulation_picture,
    simulation_sections,
    write_simulation_page,
    write_simulation_picture,
)
from optsched.report.simulation_pictures import (
    completion_times_picture,
    fairness_picture,
    queue_picture,
    utilisation_picture,
)
from optsched.report.slices import SliceRows, slices_picture
from optsched.report.topology import TopologyCells, topology_picture
from optsched.report.traces import (
    arrivals_picture,
    durations_picture,
    gangs_picture,
    load_picture,
    trace_page,
)

__all__ = [
    "FrontLines",
    "GanttRows",
    "HeatmapRows",
    "PriceBars",
    "ProgressLines",
    "ProgressRecorder",
    "SliceRows",
    "SolutionFile",
    "TopologyCells",
    "allocation_heatmap",
    "arrivals_picture",
    "completion_times_picture",
    "durations_picture",
    "evaluation_picture",
    "fairness_picture",
    "front_picture",
    "gangs_picture",
    "gpu_gantt_picture",
    "heatmap_rows",
    "load_picture",
    "price_bars",
    "progress_picture",
    "queue_picture",
    "rounds_gantt",
    "save_picture",
    "schedule_gantt",
    "simulation_picture",
    "simulation_sections",
    "slices_picture",
    "topology_picture",
    "trace_page",
    "utilisation_picture",
    "write_simulation_page",
    "write_simulation_picture",
]
