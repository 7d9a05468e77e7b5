/* Driver: the command `tfmc`. */
#ifndef TFM_DRIVER_DRIVER_H
#define TFM_DRIVER_DRIVER_H

/* Does what the command line says and returns the exit code. stdout may still hold unwritten output. */
int driver_main(int argc, char **argv);

#endif
