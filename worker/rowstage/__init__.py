"""What rules do to a row by its values, between the decoder and the batch: expression filters, transforms."""
