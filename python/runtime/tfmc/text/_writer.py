"""Texts that a language model goes on with, and its answers to messages."""
from .._errors import InputError, UsageError
from . import _chat, _folder, _settings


class Writer:
    """Continues texts with a language model that has one input, its tokens."""

    def __init__(self, model, *, folder=None, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder."""
        self.model, self.folder = _folder.open_model(model, folder, options)
        self.tokenizer = _folder.load_tokenizer(self.folder)
        if self.model.generation is None or len(self.model.inputs) != 1:
            raise InputError(f"{self.folder}: {self.model!r} does not continue rows of tokens")
        self._template, self._settings = None, _folder.generation_settings(self.folder, options)
        self._cleans = _settings.cleans(_folder.tokenizer_settings(self.folder), self.tokenizer)

    def _options(self, rows, options):
        """Options of Model.generate for these rows of ids."""
        options = {"config": self._settings, **options}
        for i, row in enumerate(rows):
            if not row:
                raise InputError(f"text {i} has no tokens: there is nothing to continue")
        return options

    def _too_long(self, rows, error):
        """A condition of the model on sizes, told of the text that is the longest; another error as it is."""
        if error.reason != "check":
            return error
        longest = max(range(len(rows)), key=lambda i: len(rows[i]))
        return InputError(f"text {longest} has {len(rows[longest])} tokens, and with those that the model writes there are "
                          f"more than it takes: {error}", reason=error.reason)

    def _write(self, rows, options, ends=()):
        """What is written after each row, without a last token of `ends`: not all of them are special."""
        options = self._options(rows, options)
        try:
            written = self.model.generate(rows, **options)
        except InputError as error:
            raise self._too_long(rows, error) from None
        if len(written) != len(rows):
            raise UsageError("generate gives one text for each; num_return_sequences is for Model.generate")
        made = [row[len(given):].tolist() for row, given in zip(written, rows)]
        texts = [self.tokenizer.decode(row[:-1] if row and row[-1] in ends else row) for row in made]
        return list(map(_settings.cleaned, texts)) if self._cleans else texts

    def _stream(self, row, options, ends=()):
        pieces = self._pieces(row, options, ends)
        yield from _settings.cleaned_pieces(pieces) if self._cleans else pieces

    def _pieces(self, row, options, ends):
        from tokenizers.decoders import DecodeStream
        options = self._options([row], options)
        decode = DecodeStream(skip_special_tokens=True)
        try:
            with self.model.stream([row], **options) as tokens:
                for token in tokens:
                    if int(token.token) in ends:
                        continue
                    piece = decode.step(self.tokenizer, int(token.token))
                    if piece:
                        yield piece
        except InputError as error:
            raise self._too_long([row], error) from None

    def generate(self, texts, **options):
        """What follows each text, a str each; a str alone for one text that is no list. Options: Model.generate. Texts
        are continued as they are: an instructed model answers messages, which chat() takes."""
        texts, alone = _folder.as_texts(texts)
        made = self._write([encoded.ids for encoded in self.tokenizer.encode_batch_fast(texts)], options)
        return made[0] if alone else made

    def stream(self, text, **options):
        """An iterator of the pieces of what follows one text; a character comes when all its bytes are there."""
        _folder.check_text(text, "the text")
        yield from self._stream(self.tokenizer.encode_batch_fast([text])[0].ids, options)

    # ---- messages ----

    def tokens_of(self, messages, *, tools=None, chat_template_kwargs=None):
        """The ids of messages, [{"role": "user", "content": "..."}], in the words of the folder's chat template, up to
        where the answer begins. Needs the package jinja2."""
        if self._template is None:
            self._template = _chat.ChatTemplate(self.folder, self.tokenizer)
        return self._template.tokens(messages, tools, chat_template_kwargs)

    def chat(self, messages, *, stream=False, tools=None, chat_template_kwargs=None, **options):
        """The answer to messages, a str; with stream=True an iterator of its pieces. tools: JSON schemas of functions,
        for templates that know tools. chat_template_kwargs: variables of the template. It ends at every end token that
        the folder names, unless eos_token_id= is among the options, which are those of Model.generate."""
        row = self.tokens_of(messages, tools=tools, chat_template_kwargs=chat_template_kwargs)
        ends = options.get("eos_token_id", _chat.end_tokens(self.folder, self.tokenizer)) or ()
        ends = (ends,) if isinstance(ends, int) else ends
        options = {"eos_token_id": ends, **options} if ends else options
        return self._stream(row, options, ends) if stream else self._write([row], options, ends)[0]

    def stream_chat(self, messages, **options):
        """chat with stream=True."""
        yield from self.chat(messages, stream=True, **options)
