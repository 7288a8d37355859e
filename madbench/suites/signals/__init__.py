"""The signals suite: images and multivariate series."""
