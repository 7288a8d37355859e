"""The signals suite: digit images and a multivariate time series."""
