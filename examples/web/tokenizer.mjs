// The tokens of BERT's uncased vocabularies: text in, ids out, as the published tokenizer of all-MiniLM-L6-v2 gives them.
// In: vocab.txt, a token a line. Refused: a vocabulary without the four special tokens that are needed.

const LONGEST_WORD = 100; // characters; longer words are unknown

// Chinese characters are words of their own.
const IDEOGRAPH = /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/gu;
const CONTROL = /[\0\ufffd]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu;
const PUNCTUATION = /[!-/:-@[-`{-~]|\p{P}/gu;

export class Tokenizer {
  constructor(vocabulary) {
    this.ids = new Map(vocabulary.split('\n').map((token, id) => [token.replace(/\r$/, ''), id]));
    for (const token of ['[PAD]', '[UNK]', '[CLS]', '[SEP]'])
      if (!this.ids.has(token)) throw new Error(`the vocabulary has no ${token}`);
  }

  words(text) {
    const plain = text.replace(CONTROL, '').replace(IDEOGRAPH, ' $& ').normalize('NFD').replace(/\p{Mn}/gu, '').toLowerCase();
    return plain.replace(PUNCTUATION, ' $& ').split(/\s+/u).filter(word => word);
  }

  // The longest pieces that the vocabulary has, from left to right; those behind the first begin with ##.
  pieces(word) {
    const characters = [...word], found = [];
    const unknown = [this.ids.get('[UNK]')];
    if (characters.length > LONGEST_WORD) return unknown;
    for (let start = 0, end; start < characters.length; start = end) {
      let id;
      for (end = characters.length; end > start; end--) {
        id = this.ids.get((start ? '##' : '') + characters.slice(start, end).join(''));
        if (id !== undefined) break;
      }
      if (id === undefined) return unknown;
      found.push(id);
    }
    return found;
  }

  // [CLS] ... [SEP], cut to `longest` tokens.
  encode(text, longest = 256) {
    const ids = this.words(text).flatMap(word => this.pieces(word)).slice(0, longest - 2);
    return [this.ids.get('[CLS]'), ...ids, this.ids.get('[SEP]')];
  }

  // Rows of one length with their mask, as the model takes them.
  batch(texts) {
    const rows = texts.map(text => this.encode(text)), time = Math.max(...rows.map(row => row.length));
    const pad = this.ids.get('[PAD]'), fill = (row, value) => [...row, ...Array(time - row.length).fill(value)];
    return { input_ids: rows.map(row => fill(row, pad)), attention_mask: rows.map(row => fill(row.map(() => 1), 0)) };
  }
}
