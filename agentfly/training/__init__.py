"""Training jobs, and the seam to the backends that carry them out."""
