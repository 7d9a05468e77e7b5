// Sentences by meaning: each is a row of 384 numbers of length 1, and the nearest have the greatest product.
import { Tokenizer } from './tokenizer.mjs';

const AT_ONCE = 8; // sentences of one run: a page stays alive between runs

export class Search {
  constructor(model, vocabulary) {
    this.model = model;
    this.tokenizer = new Tokenizer(vocabulary);
    this.sentences = [];
    this.rows = [];
  }

  embed(texts) {
    const { embedding } = this.model.run(this.tokenizer.batch(texts)), width = embedding.dims[1];
    return texts.map((_, i) => embedding.data.subarray(i * width, (i + 1) * width));
  }

  async add(sentences, progress) {
    for (let i = 0; i < sentences.length; i += AT_ONCE) {
      const some = sentences.slice(i, i + AT_ONCE);
      this.rows.push(...this.embed(some));
      this.sentences.push(...some);
      progress?.(this.sentences.length, sentences.length);
      await new Promise(done => setTimeout(done));
    }
  }

  nearest(question, n = 3) {
    const [row] = this.embed([question]);
    const found = this.rows.map((known, i) => ({ sentence: this.sentences[i], likeness: known.reduce((sum, x, k) => sum + x * row[k], 0) }));
    return found.sort((a, b) => b.likeness - a.likeness).slice(0, n);
  }
}
