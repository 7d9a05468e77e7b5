" How .tfm files are written: two blanks, comments with #, and `gq` or `=` by the formatter.
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal expandtab shiftwidth=2 softtabstop=2 commentstring=#\ %s comments=:#
let &l:formatprg = 'tfmc fmt --stdin'
let b:undo_ftplugin = 'setlocal expandtab< shiftwidth< softtabstop< commentstring< comments< formatprg<'
