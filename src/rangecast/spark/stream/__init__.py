"""Matching a streaming DataFrame, each micro-batch once and against one version."""
