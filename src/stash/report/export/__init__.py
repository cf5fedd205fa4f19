"""Profiles as other tools keep them: MLflow, Weights & Biases, TensorBoard, OpenMetrics text."""
