"""Inputs: the files that jobs run over, from the upload form to the end of their window."""
