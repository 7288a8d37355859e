"""Analysis of stored runs: scores, intervals, tests, tables and figures."""
