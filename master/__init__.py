"""dm-master: decides; all of its state is in etcd."""
