#ifndef TFM_CLI_TEXT_COMMAND_H
#define TFM_CLI_TEXT_COMMAND_H

/* `tfmc generate FOLDER ...` takes texts: the package tfmc.text of Python does that, and this becomes its process.
 * Returns where the command line is another one (-1), or with the exit code if no Python can be started. */
int text_command(int argc, char **argv);

#endif
