// Starts `tfmc lsp` for .tfm files. What it is started with comes from the settings; a change of the path starts it anew.
'use strict';

const { workspace } = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');

let client;

function settings() {
  const { define, variants, hints, costs } = workspace.getConfiguration('tfmc');
  return variants.length ? { variants, hints, costs } : { define, hints, costs };
}

async function start() {
  const command = workspace.getConfiguration('tfmc').get('path');
  client = new LanguageClient('tfmc', 'tfmc', { command, args: ['lsp'] }, {
    documentSelector: [{ scheme: 'file', language: 'tfm' }],
    initializationOptions: settings(),
    synchronize: { fileEvents: workspace.createFileSystemWatcher('**/*.tfm') },
  });
  await client.start();
}

exports.activate = async (context) => {
  context.subscriptions.push(workspace.onDidChangeConfiguration(async (change) => {
    if (change.affectsConfiguration('tfmc.path')) {
      await client.stop();
      await start();
    } else if (change.affectsConfiguration('tfmc')) {
      client.sendNotification('workspace/didChangeConfiguration', { settings: { tfmc: settings() } });
    }
  }));
  await start();
};

exports.deactivate = () => client && client.stop();
