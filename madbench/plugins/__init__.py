"""The registry of families, tasks, suites, papers and modules, built in or installed, and the folders of papers."""
