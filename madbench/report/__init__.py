"""The report and the leaderboard: self-contained HTML files with the tables and figures of stored runs."""
