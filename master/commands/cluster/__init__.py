"""Commands that concern the cluster: members, leadership, stored configuration."""
