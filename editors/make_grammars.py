#!/usr/bin/env python3
"""usage: make_grammars.py [--check]

Writes the grammars that editors color .tfm files with, from the tables of the compiler: words (compiler/parse/words.def),
primitives (compiler/elaborate/primitives.def), and the standard layers and functions. With --check nothing is written: it
names the files that are not as they would be made, and the exit code is 1 then.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTMATE, VIM = ROOT / "editors/vscode/syntaxes/tfm.tmLanguage.json", ROOT / "editors/vim/syntax/tfm.vim"
TYPES = ["bool", "f32", "i32"]
# Group of words.def -> scope of TextMate, group of Vim.
GROUPS = {"ITEM": ("storage.type", "tfmItem"), "STATEMENT": ("keyword.control", "tfmStatement"), "OPERATOR": ("keyword.operator.word", "tfmOperator"),
          "CONSTANT": ("constant.language", "tfmConstant"), "BESIDE": ("storage.type", "tfmItem")}
VIM_LINKS = {"tfmItem": "Structure", "tfmStatement": "Statement", "tfmOperator": "Operator", "tfmConstant": "Constant", "tfmType": "Type",
             "tfmFunction": "Function", "tfmLayer": "Type", "tfmNumber": "Number", "tfmString": "String", "tfmPlace": "Special",
             "tfmComment": "Comment", "tfmMark": "Operator", "tfmTodo": "Todo"}


def words():
    """Group -> its words, in order."""
    found = {}
    for word, group in re.findall(r'^WORD\("(\w+)", (\w+)\)', (ROOT / "compiler/parse/words.def").read_text(), re.M):
        found.setdefault(group, []).append(word)
    return found


def primitives():
    names = re.findall(r"^PRIMITIVE\((\w+),", (ROOT / "compiler/elaborate/primitives.def").read_text(), re.M)
    return sorted(set(names) - set(TYPES))


def standard(kind):
    texts = [path.read_text() for path in sorted((ROOT / "compiler/elaborate/std").glob("*.tfm"))]
    return sorted({name for text in texts for name in re.findall(rf"^{kind} (\w+)", text, re.M) if name[0] != "_"})


def either(names):
    return r"\b(?:" + "|".join(names) + r")\b"


def textmate():
    """Patterns that each match within a line, the first of those that match first: no state is carried on."""
    # Words of a block beside a model are names elsewhere: they count at the beginning of a line, before what may follow.
    groups = words()
    patterns = [
        {"name": "comment.line.number-sign.tfm", "match": r"#.*$"},
        {"name": "string.quoted.double.tfm", "match": r'"(?:[^"\\]|\\.)*"?'},
        {"match": r"\b(layer|model)\s+([A-Za-z_]\w*)", "captures": {"1": {"name": "storage.type.tfm"}, "2": {"name": "entity.name.type.tfm"}}},
        {"match": r"\b(fn)\s+([A-Za-z_]\w*)", "captures": {"1": {"name": "storage.type.tfm"}, "2": {"name": "entity.name.function.tfm"}}},
        {"match": r"^\s*(" + "|".join(groups["BESIDE"]) + r")\b(?=\s*[\"\[A-Za-z_])", "captures": {"1": {"name": "storage.type.tfm"}}},
        {"name": "constant.numeric.tfm", "match": r"\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b"},
    ]
    for group, names in groups.items():
        if group != "BESIDE":
            patterns.append({"name": GROUPS[group][0] + ".tfm", "match": either(names)})
    patterns += [
        {"name": "support.type.tfm", "match": either(TYPES)},
        {"name": "support.class.tfm", "match": either(standard("layer"))},
        {"name": "support.function.tfm", "match": either(sorted(set(primitives()) | set(standard("fn")))) + r"(?=\s*\()"},
        {"name": "variable.other.tfm", "match": r"\b[A-Za-z_]\w*"},
        {"name": "keyword.operator.tfm", "match": r"->|\.\.\.|\*\*|//|[=!<>]=|[-+*/%@=<>\u00d7]"},
        {"name": "punctuation.tfm", "match": r"[()\[\]{},:.]"},
    ]
    grammar = {"$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json", "name": "tfm", "scopeName": "source.tfm",
               "fileTypes": ["tfm"], "patterns": patterns}
    return json.dumps(grammar, indent=2, ensure_ascii=False) + "\n"


def vim():
    groups = words()
    lines = ['" Colors of .tfm files. Made by editors/make_grammars.py; changes belong there.', "if exists('b:current_syntax')", "  finish", "endif", "",
             "syntax case match", "syntax iskeyword @,48-57,_"]

    def keywords(group, names):
        for i in range(0, len(names), 10):
            lines.append(f"syntax keyword {group} {' '.join(names[i:i + 10])}")
    for group, names in groups.items():
        if group == "BESIDE":
            lines.append(rf'syntax match {GROUPS[group][1]} @^\s*\zs\%({(chr(92) + "|").join(names)}\)\>\ze\s*["\[A-Za-z_]@')
        else:
            keywords(GROUPS[group][1], names)
    keywords("tfmType", TYPES)
    keywords("tfmLayer", standard("layer"))
    keywords("tfmFunction", sorted(set(primitives()) | set(standard("fn"))))
    lines += [r'syntax match tfmNumber "\<\d\+\%(\.\d\+\)\?\%([eE][+-]\?\d\+\)\?\>"', r'syntax match tfmMark "->\|\.\.\.\|\*\*\|//\|[=!<>]=\|[-+*/%@=<>×]"',
              r'syntax match tfmPlace "{\w\+}" contained', r'syntax region tfmString start=+"+ skip=+\\.+ end=+"+ oneline contains=tfmPlace',
              r'syntax keyword tfmTodo TODO FIXME XXX contained', r'syntax match tfmComment "#.*$" contains=tfmTodo,@Spell', ""]
    lines += [f"highlight default link {group} {link}" for group, link in sorted(VIM_LINKS.items())]
    return "\n".join([*lines, "", "let b:current_syntax = 'tfm'"]) + "\n"


def main():
    made = {TEXTMATE: textmate(), VIM: vim()}
    if sys.argv[1:] == ["--check"]:
        stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what editors/make_grammars.py makes of the tables; run it")
        return bool(stale)
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
