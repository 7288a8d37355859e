"""Figures, one kind a file: from scores and curves to the frame of what is drawn, and from that alone to a figure."""
