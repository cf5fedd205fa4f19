"""Pure conclusions from saved artefacts and the catalog: stalls, findings, and the advice they lead to."""
