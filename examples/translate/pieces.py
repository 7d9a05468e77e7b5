"""SentencePiece models of the unigram kind (the source.spm of an OPUS-MT translator) as tokenizers of `tokenizers`."""
import struct
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

VARINT, LONG, BYTES, SHORT = 0, 1, 2, 5  # wire types of protobuf
UNIGRAM, UNKNOWN = 1, 2


def varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at


def fields(data):
    """(number, value) of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == VARINT:
            value, at = varint(data, at)
        elif key & 7 in (LONG, SHORT):
            end = at + (8 if key & 7 == LONG else 4)
            value, at = data[at:end], end
        elif key & 7 == BYTES:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            raise ValueError("this is no SentencePiece model")
        yield key >> 3, value


def read(path):
    """The pieces with their scores, the number of the unknown one, the table of the normalizer."""
    pieces, unknown, table = [], 0, b""
    for number, value in fields(path.read_bytes()):
        if number == 1:
            piece = dict(fields(value))
            if piece.get(3) == UNKNOWN:
                unknown = len(pieces)
            pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0]))
        elif number == 2 and dict(fields(value)).get(3, UNIGRAM) != UNIGRAM:
            raise ValueError(f"{path} is not of the unigram kind")
        elif number == 3:
            said = dict(fields(value))
            table = said.get(2, b"")
            if not (said.get(3, True) and said.get(4, True) and said.get(5, True)):  # a space before a text, spaces made one, and written as a letter
                raise ValueError(f"{path} has spaces of its own kind")
    return pieces, unknown, table


def tokenizer(path):
    pieces, unknown, table = read(path)
    made = Tokenizer(models.Unigram(pieces, unknown, False))
    spaces = normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex("^ +| +$"), "")
    made.normalizer = normalizers.Sequence([normalizers.Precompiled(table), *spaces] if table else [*spaces])
    made.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    return made
