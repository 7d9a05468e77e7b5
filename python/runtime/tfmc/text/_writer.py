"""Texts that a language model goes on with, and its answers to messages."""
from .._errors import EnvError, InputError, UsageError
from . import _folder


class Writer:
    """Continues texts with a language model that has one input, its tokens."""

    def __init__(self, model, *, folder=None, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder."""
        self.model, self.folder = _folder.open_model(model, folder, options)
        self.tokenizer = _folder.load_tokenizer(self.folder)
        if self.model.generation is None or len(self.model.inputs) != 1:
            raise InputError(f"{self.folder}: {self.model!r} does not continue rows of tokens")
        self._templates = None

    def _options(self, rows, options):
        """Options of Model.generate for these rows of ids."""
        if "config" not in options and (self.folder / "generation_config.json").is_file():
            options = {"config": self.folder, **options}
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

    def _write(self, rows, options):
        options = self._options(rows, options)
        try:
            written = self.model.generate(rows, **options)
        except InputError as error:
            raise self._too_long(rows, error) from None
        if len(written) != len(rows):
            raise UsageError("generate gives one text for each; num_return_sequences is for Model.generate")
        return [self.tokenizer.decode(row[len(given):].tolist()) for row, given in zip(written, rows)]

    def _stream(self, row, options):
        from tokenizers.decoders import DecodeStream
        options = self._options([row], options)
        decode = DecodeStream(skip_special_tokens=True)
        try:
            with self.model.stream([row], **options) as tokens:
                for token in tokens:
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

    def tokens_of(self, messages):
        """The ids of messages, [{"role": "user", "content": "..."}], in the words of the folder's chat template, up to
        where the answer begins. Needs the package transformers, which reads such templates."""
        if self._templates is None:
            self._templates = self._load_templates()
        try:
            made = self._templates.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
        except Exception as error:  # of the template's own, or of jinja2
            raise UsageError(f"{self.folder}: the chat template does not take these messages: {error}") from None
        return [int(token) for token in (made["input_ids"] if hasattr(made, "keys") else made)]

    def _load_templates(self):
        has_one = (self.folder / "chat_template.jinja").is_file() or \
            _folder.read(self.folder, "tokenizer_config.json").get("chat_template") is not None
        if not has_one:
            raise UsageError(f"{self.folder}: there is no chat template, neither chat_template.jinja nor a key of "
                             "tokenizer_config.json; generate() continues texts")
        try:
            import jinja2  # noqa: F401, which transformers asks for only when a template is used
            import transformers
        except ImportError as error:
            raise EnvError(f"chat templates need the package {error.name}: pip install transformers jinja2; else write "
                           "the text around the messages yourself, for generate()") from None
        try:
            return transformers.AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        except Exception as error:
            raise InputError(f"{self.folder}: {error}") from None

    def chat(self, messages, **options):
        """The answer to messages, a str. Options: Model.generate."""
        return self._write([self.tokens_of(messages)], options)[0]

    def stream_chat(self, messages, **options):
        """The same as an iterator of pieces."""
        yield from self._stream(self.tokens_of(messages), options)
