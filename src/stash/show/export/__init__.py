"""Profiles as other tools keep them: MLflow, Weights & Biases, TensorBoard, OpenMetrics text.

``exported`` prepares what all of them get, from the breakdown; each writer only hands it over, through the tool's own
package, which is imported when it is asked for.
"""

from stash.show.export.runs import ExportedRun, exported

__all__ = ["ExportedRun", "exported"]
