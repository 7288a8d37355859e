"""The registry of extensions, built in or installed, and the folders of papers.

Extensions are families, tasks, suites, papers, modules and checks.
"""
