"""The report: a self-contained HTML file with tables, figures and the runs behind every number."""
