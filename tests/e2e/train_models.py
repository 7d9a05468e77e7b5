"""Models that the tests of training share; SETTINGS stands for what is in the train block."""

TINY = """model Tiny(vocab = 7, d = 4, p = 0.0) {
  embed = Embedding(vocab, d)
  head  = Linear(d, vocab)

  forward(ids: i32[batch, time]) {
    logits = ids -> embed -> Dropout(p) -> head
    return logits
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    logits = forward(ids)
    return loss = cross_entropy(logits, labels, ignore_index = 0), right = sum(sum(f32(argmax(logits) == labels)))
  }
  train objective { SETTINGS }
}
"""
