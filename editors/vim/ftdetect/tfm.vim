autocmd BufRead,BufNewFile *.tfm setfiletype tfm
