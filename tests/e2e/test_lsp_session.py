#!/usr/bin/env python3
"""usage: test_lsp_session.py TFMC

A session of the language server with a real client (pytest-lsp, with pygls and lsprotocol), which checks every answer
against the protocol and against what Neovim, Visual Studio Code and Emacs say that they can do. The last line is
'N passed, N failed'.
"""
import os
import pathlib
import sys
import tempfile

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

TFMC = os.environ.get("TFMC_OF_SESSION", "tfmc")
TEXT = """\
layer Block(d) {
  up = Linear(d, d)

  forward(x) = x -> up
}

model Net(d = 16) {
  embed = Embedding(100, d)
  block = Block(d)

  forward(ids: i32[batch, time]) { return y = embed(ids) -> block }
}
"""


@pytest_lsp.fixture(params=["neovim", "visual-studio-code", "emacs"], config=ClientServerConfig(server_command=[TFMC, "lsp"]))
async def client(request, lsp_client: LanguageClient):
    await lsp_client.initialize_session(types.InitializeParams(capabilities=client_capabilities(request.param)))
    yield
    await lsp_client.shutdown_session()


async def opened(client, folder, text=TEXT):
    path = pathlib.Path(folder) / "net.tfm"
    path.write_text(text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(path.as_uri(), "tfm", 1, text)))
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return path.as_uri()


def at(uri, line, character):
    return {"text_document": types.TextDocumentIdentifier(uri), "position": types.Position(line, character)}


@pytest.mark.asyncio
async def test_messages(client, tmp_path):
    uri = await opened(client, tmp_path, TEXT.replace("embed(ids)", "embd(ids)"))
    found, = client.diagnostics[uri]
    assert (found.code, found.range.start.line, found.severity) == ("E0202", 10, types.DiagnosticSeverity.Error)
    client.text_document_did_change(types.DidChangeTextDocumentParams(
        types.VersionedTextDocumentIdentifier(2, uri), [types.TextDocumentContentChangeWholeDocument(TEXT)]))
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert not client.diagnostics[uri]


@pytest.mark.asyncio
async def test_names(client, tmp_path):
    uri = await opened(client, tmp_path)
    hover = await client.text_document_hover_async(types.HoverParams(**at(uri, 10, 48)))
    assert "member embed" in hover.contents.value
    definition, = await client.text_document_definition_async(types.DefinitionParams(**at(uri, 8, 12)))
    assert (definition.uri, definition.range.start) == (uri, types.Position(0, 6))
    places = await client.text_document_references_async(types.ReferenceParams(types.ReferenceContext(True), **at(uri, 0, 12)))
    assert len(places) == 3  # declared, and twice in Linear(d, d)
    assert len(await client.text_document_document_highlight_async(types.DocumentHighlightParams(**at(uri, 1, 2)))) == 2
    tops = await client.text_document_document_symbol_async(types.DocumentSymbolParams(types.TextDocumentIdentifier(uri)))
    assert [top.name for top in tops] == ["Block", "Net"]
    edit = await client.text_document_rename_async(types.RenameParams(**at(uri, 1, 2), new_name="upward"))
    assert len(edit.changes[uri]) == 3  # two places, and `as "up"`
    place = await client.text_document_prepare_rename_async(types.PrepareRenameParams(**at(uri, 1, 2)))
    assert place.end.character - place.start.character == 2


@pytest.mark.asyncio
async def test_writing(client, tmp_path):
    uri = await opened(client, tmp_path, TEXT.replace("  up = ", "up  ="))
    completion = await client.text_document_completion_async(types.CompletionParams(**at(uri, 10, 48)))
    assert {"embed", "Linear", "softmax", "return"} <= {item.label for item in completion.items}
    signature = await client.text_document_signature_help_async(types.SignatureHelpParams(**at(uri, 7, 23)))
    assert signature.signatures[0].label.startswith("layer Embedding(num_embeddings")
    edits = await client.text_document_formatting_async(types.DocumentFormattingParams(
        types.TextDocumentIdentifier(uri), types.FormattingOptions(4, True)))
    assert [edit.new_text for edit in edits] == ["  up = Linear(d, d)\n"]
    hints = await client.text_document_inlay_hint_async(types.InlayHintParams(
        types.TextDocumentIdentifier(uri), types.Range(types.Position(0, 0), types.Position(11, 0))))
    assert not hints
    actions = await client.text_document_code_action_async(types.CodeActionParams(
        types.TextDocumentIdentifier(uri), types.Range(types.Position(0, 0), types.Position(0, 0)), types.CodeActionContext([])))
    assert not actions


@pytest.mark.asyncio
async def test_costs(client, tmp_path):
    uri = await opened(client, tmp_path)
    lenses = await client.text_document_code_lens_async(types.CodeLensParams(types.TextDocumentIdentifier(uri)))
    assert {lens.range.start.line: lens.command.title.split(", ")[0] for lens in lenses} == \
        {line: "512 FLOP × batch × time" for line in (3, 10)}
    assert all(lens.command.command == "" for lens in lenses)


class Tally:
    passed = failed = 0

    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed
        self.failed += report.failed


if __name__ == "__main__":
    os.environ["TFMC_OF_SESSION"] = str(pathlib.Path(sys.argv[1]).resolve())
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(pathlib.Path(__file__).parent), f"--basetemp={folder}/pytest"]
        pytest.main([*options, __file__], plugins=[tally])
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(tally.failed != 0 or tally.passed == 0)
