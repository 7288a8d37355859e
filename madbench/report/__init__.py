"""The report: one self-contained HTML file with the tables, the figures and every run behind a number."""
