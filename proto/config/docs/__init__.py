"""Documents generated from the models: reference, JSON Schemas, samples."""
