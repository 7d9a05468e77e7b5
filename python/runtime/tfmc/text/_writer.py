"""Texts that a language model goes on with."""
from .._errors import InputError, UsageError
from . import _folder


class Writer:
    """Continues texts with a language model that has one input, its tokens."""

    def __init__(self, model, *, folder=None, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder."""
        self.model, self.folder = _folder.open_model(model, folder, options)
        self.tokenizer = _folder.load_tokenizer(self.folder)
        if self.model.generation is None or len(self.model.inputs) != 1:
            raise InputError(f"{self.folder}: {self.model!r} does not continue rows of tokens")

    def _given(self, texts, options):
        """(rows of ids, options of Model.generate)"""
        if "config" not in options and (self.folder / "generation_config.json").is_file():
            options = {"config": self.folder, **options}
        rows = [encoded.ids for encoded in self.tokenizer.encode_batch_fast(texts)]
        for i, row in enumerate(rows):
            if not row:
                raise InputError(f"text {i} has no tokens: there is nothing to continue")
        return rows, options

    def generate(self, texts, **options):
        """What follows each text, a str each; a str alone for one text that is no list. Options: Model.generate."""
        texts, alone = _folder.as_texts(texts)
        rows, options = self._given(texts, options)
        written = self.model.generate(rows, **options)
        if len(written) != len(rows):
            raise UsageError("generate gives one text for each; num_return_sequences is for Model.generate")
        made = [self.tokenizer.decode(row[len(given):].tolist()) for row, given in zip(written, rows)]
        return made[0] if alone else made

    def stream(self, text, **options):
        """An iterator of the pieces of what follows one text; a character comes when all its bytes are there."""
        from tokenizers.decoders import DecodeStream
        rows, options = self._given(_folder.as_texts([text])[0], options)
        decode = DecodeStream(skip_special_tokens=True)
        with self.model.stream(rows, **options) as tokens:
            for token in tokens:
                piece = decode.step(self.tokenizer, int(token.token))
                if piece:
                    yield piece
