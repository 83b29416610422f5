"""Commands that concern the cluster."""
