"""Values of the DataFrame: the server's texts, and the decoder's literals as such texts, become Arrow arrays."""
