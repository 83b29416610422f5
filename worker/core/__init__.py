"""Values that other folders of the worker share. Imports no other folder of the worker."""
