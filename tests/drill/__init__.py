"""The operator's drill: ten faults and more in a running ``threadfold up`` (docs/drill.md)."""
