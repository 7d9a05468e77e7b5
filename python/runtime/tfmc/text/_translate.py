"""Texts in another language: encoder-decoders (Marian, M2M100, NLLB, mBART, T5) with the tokens of their folder."""
import re

import numpy as np

from .._errors import EnvError, InputError, UsageError
from . import _classes, _folder, _lingual, _settings

BATCH_TOKENS = 1024  # of sources, that are translated together
NEW_TOKENS = 256     # of a text at most, where neither the caller nor the folder says it
PIECES = "source.spm", "sentencepiece.bpe.model", "spiece.model"
LANGUAGE = re.compile(r"__\w+__|[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")  # names of tokens that stand for a language


class FileTokens:
    """The tokens of a tokenizer.json."""

    def __init__(self, folder):
        self.tokenizer = _folder.load_tokenizer(folder)
        self.cleans = _settings.cleans(_folder.tokenizer_settings(folder), self.tokenizer)
        self.special = {token.content for token in self.tokenizer.get_added_tokens_decoder().values()}

    def encode(self, texts):
        return [encoded.ids for encoded in self.tokenizer.encode_batch_fast(texts)]

    def decode(self, ids):
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return _settings.cleaned(text) if self.cleans else text

    def find(self, name):
        """The id of a language's token; None: the tokenizer has none."""
        return self.tokenizer.token_to_id(name) if name in self.special or LANGUAGE.fullmatch(name) else None

    def prefix(self, name):
        """Whether a token at the beginning of a text says which language is wanted."""
        return self.tokenizer.token_to_id(name) is not None

    def source(self):
        """The id of the token that says in which language texts are; None: there is no such token."""
        for number in self.tokenizer.encode("").ids:
            if LANGUAGE.fullmatch(self.tokenizer.id_to_token(number) or ""):
                return number
        return None


class PieceTokens:
    """The tokens of a vocab.json, texts being cut into pieces by a model of SentencePiece."""

    def __init__(self, folder):
        self.ids = _folder.read(folder, "vocab.json")
        for name in ("<unk>", "</s>"):
            if name not in self.ids:
                raise InputError(f"{folder / 'vocab.json'}: there is no \"{name}\"")
        settings = _folder.tokenizer_settings(folder)
        self.cleans = _settings.cleans(settings)
        kind = settings.get("tokenizer_class") or _folder.read(folder, "config.json").get("model_type")
        self.has_prefixes = kind not in ("M2M100Tokenizer", "m2m_100")
        named = list(map(_settings.content, _settings.more(settings)))
        listed, codes = self._behind(named), [] if self.has_prefixes else self._codes(folder, settings)
        self.languages = self._behind(codes) if codes else listed
        self.names = {number: name for name, number in self.ids.items()}
        self.unknown, self.end = self.ids["<unk>"], self.ids["</s>"]
        special = [name for name in ("</s>", "<pad>", "<s>", "<unk>") if name in self.ids]
        self.skipped = {self.ids[name] for name in special}
        self.special = {**{name: self.ids[name] for name in special}, **listed}  # what is found in a text, too
        self._between = re.compile("|".join(map(re.escape, sorted(self.special, key=len, reverse=True))))
        source = settings.get("src_lang") or "en"
        self._source = self.find(source) if self.languages and isinstance(source, str) else None
        if self.languages and self._source is None:
            raise InputError(f"{folder / 'tokenizer_config.json'}: src_lang is {settings.get('src_lang')!r}, and there is no such language")
        self.split = _splitter(folder)

    def _behind(self, names):
        """The ids of tokens behind the vocabulary, in this order."""
        return {name: self.ids.get(name, len(self.ids) + i) for i, name in enumerate(names)}

    @staticmethod
    def _codes(folder, settings):
        """The tokens of languages that M2M100 has, whatever is listed."""
        said = settings.get("language_codes", "m2m100")
        if not isinstance(said, str) or said not in _lingual.M2M100:
            raise InputError(f"{folder / 'tokenizer_config.json'}: language_codes is {said!r}, and {', '.join(_lingual.M2M100)} are known")
        return [f"__{code}__" for code in _lingual.M2M100[said]]

    def encode(self, texts):
        """A token that is special is found in a text, too; what says the language wanted, at its beginning."""
        rows, first = [], [] if self._source is None else [self._source]
        for text in texts:
            ids, at = list(first), 0
            for found in [*self._between.finditer(text), None]:
                ids += self._pieces(text[at:found.start() if found else None])
                if found:
                    ids.append(self.special[found[0]])
                    at = found.end()
            rows.append([*ids, self.end])
        return rows

    def _pieces(self, text):
        code, text = re.fullmatch(r"(>>.*?<<)?(.*)", text, re.DOTALL).groups() if self.has_prefixes else (None, text)
        return [self.ids.get(name, self.unknown) for name in [code] * bool(code) + self.split(text)]

    def decode(self, ids):
        names = [self.names[i] for i in ids if i in self.names and i not in self.skipped]
        text = "".join(names).replace("▁", " ").strip()
        return _settings.cleaned(text) if self.cleans else text

    def find(self, name):
        return self.languages.get(name, self.languages.get(f"__{name}__"))

    def prefix(self, name):
        return name in self.ids

    def source(self):
        return self._source


def tokens_of(folder):
    """The tokens of a folder. The classes of Marian and M2M100 read pieces, whatever a tokenizer.json beside them says."""
    if not (folder / "tokenizer.json").is_file():
        return PieceTokens(folder)
    kind = _classes.name_of(_folder.tokenizer_settings(folder), _folder.read(folder, "config.json"), False)
    has_pieces = (folder / "vocab.json").is_file() and any((folder / name).is_file() for name in PIECES)
    return (PieceTokens if has_pieces and kind in ("Marian", "M2M100") else FileTokens)(folder)


def _splitter(folder):
    """What cuts a text into pieces: the names of them."""
    from . import _pieces
    for name in PIECES:
        path = folder / name
        if path.is_file():
            break
    else:
        raise EnvError(f"{folder}: there is neither tokenizer.json nor source.spm or sentencepiece.bpe.model")
    try:
        made = _pieces.tokenizer(path)
        return lambda text: made.encode(text).tokens
    except (ValueError, IndexError) as error:  # it is of another kind
        try:
            import sentencepiece
        except ImportError:
            raise EnvError(f"{path}: {error}; the package sentencepiece reads more of them: pip install sentencepiece"
                           ) from None
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return lambda text: processor.encode(text, out_type=str)


class Translator:
    """Translates texts; a translation does not depend on the texts beside it."""

    def __init__(self, model, *, folder=None, max_length=None, batch_tokens=BATCH_TOKENS, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder.

        max_length: tokens of a source; None: what the model's table of positions takes. batch_tokens: how many tokens
        of sources are translated together.
        """
        self.model, self.folder = _folder.open_model(model, folder, options)
        self.tokens = tokens_of(self.folder)
        generation = self.model.generation
        if generation is None or set(self.model.inputs) != {"input_ids", "attention_mask", generation.input}:
            raise InputError(f"{self.folder}: {self.model!r} does not write texts from input_ids and attention_mask: of a "
                             "folder with a body alone (BartModel), AutoModelForSeq2SeqLM.from_pretrained(FOLDER).save_pretrained(NEW) in "
                             "transformers makes one that does; what continues texts is for tfmc.text.Writer")
        self.max_length = _folder.whole(max_length, "max_length") or _folder.positions(self.folder)
        self.batch_tokens = _folder.whole(batch_tokens, "batch_tokens") or BATCH_TOKENS
        self.defaults = self._defaults(_folder.generation_settings(self.folder, options))

    def _defaults(self, settings):
        """The folder's settings of generation, with a limit of length and without chance."""
        defaults = {"config": settings} if settings else {}
        if not {"max_length", "max_new_tokens"} & {name for name, value in settings.items() if value is not None}:
            most = _folder.positions(self.folder)
            defaults["max_new_tokens"] = NEW_TOKENS if most is None else min(NEW_TOKENS, most - 1)
        if settings.get("do_sample"):
            defaults["do_sample"] = False
        return defaults

    def _begin(self, texts, source, target, prompt):
        """(texts with what stands before them, options) for a target language."""
        _folder.check_text(prompt, "the prompt")
        code, options = f">>{target}<<", {}
        if target is not None and self.tokens.prefix(code):
            prompt = f"{code} {prompt}"
        elif target is not None:
            options["forced_bos_token_id"] = self._language(target)
        if source is not None and self.tokens.source() is None:
            raise UsageError(f"{self.folder}: the tokenizer has no token for the language of a source")
        return [prompt + text for text in texts] if prompt else texts, options

    def _language(self, name):
        found = self.tokens.find(name)
        found = self.tokens.find(f"__{name}__") if found is None else found
        if found is None:
            raise UsageError(f"{self.folder}: the tokenizer has no token for the language \"{name}\"; where the text "
                             "itself says the language, as for T5, it is prompt=\"translate English to German: \"")
        return found

    def _rows(self, texts, source, truncate):
        """(rows of ids, {number of a text: why it is too long})"""
        rows, reasons = self.tokens.encode(texts), {}
        if source is not None:
            old, new = self.tokens.source(), self._language(source)
            rows = [[new if token == old else token for token in row] for row in rows]
        for i, row in enumerate(rows):
            if self.max_length is None or len(row) <= self.max_length:
                continue
            if not truncate:
                reasons[i] = f"the text has {len(row)} tokens, and the model takes {self.max_length}"
            rows[i] = row[:self.max_length - 1] + row[-1:]
        return rows, reasons

    def _write(self, rows, made, options):
        """The translations of rows whose place in `made` is None."""
        numbers = [i for i, text in enumerate(made) if text is None]
        for run in _folder.runs([rows[i] for i in numbers], self.batch_tokens):
            ids, mask = _folder.padded([rows[numbers[k]] for k in run])
            written = self.model.generate(input_ids=ids, attention_mask=mask, **options)
            for k, row in zip(run, written):
                made[numbers[k]] = self.tokens.decode(np.asarray(row).tolist())
        return made

    def translate_each(self, texts, *, target=None, source=None, prompt="", truncate=False, **options):
        """For a corpus: (translations, {number of a text: why it has none}, tokens), no text being a reason to stop."""
        texts, faults = _folder.without_faults(texts)
        texts, more = self._begin(texts, source, target, prompt)
        rows, reasons = self._rows(texts, source, truncate)
        reasons.update(faults)
        made = ["" if i in reasons else None for i in range(len(rows))]
        tokens = sum(len(row) for i, row in enumerate(rows) if i not in reasons)
        return self._write(rows, made, {**self.defaults, **more, **options}), reasons, tokens

    def translate(self, texts, *, target=None, source=None, prompt="", truncate=False, **options):
        """A translation of each text, a str each; a str alone for one text that is no list.

        target, source: languages by the names of their tokens, for tokenizers that have such ("fra_Latn", "fr", "fra").
        prompt: what stands before each text. truncate=True cuts texts that are too long; else they are refused. More
        options are those of Model.generate: num_beams, max_new_tokens.
        """
        texts, alone = _folder.as_texts(texts)
        if options.get("do_sample") or options.get("num_return_sequences", 1) != 1:
            raise UsageError("translate gives the likeliest text of each; Model.generate draws, and gives several")
        texts, more = self._begin(texts, source, target, prompt)
        rows, reasons = self._rows(texts, source, truncate)
        for i, reason in reasons.items():
            raise InputError(f"text {i}: {reason}; truncate=True cuts it")
        made = self._write(rows, [None] * len(rows), {**self.defaults, **more, **options})
        return made[0] if alone else made

    __call__ = translate
