"""What a decision model reads of a row, known without the model: which checkpoint, which texts, how many tokens."""
