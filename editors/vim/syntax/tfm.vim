" Colors of .tfm files. Made by editors/make_grammars.py; changes belong there.
if exists('b:current_syntax')
  finish
endif

syntax case match
syntax iskeyword @,48-57,_
syntax keyword tfmItem include layer model weight fn forward generate train
syntax keyword tfmStatement require return if then else for in from as ragged
syntax keyword tfmOperator and or not
syntax keyword tfmConstant none true false inf
syntax match tfmItem @^\s*\zs\%(checkpoint\|expect\|ignore\)\>\ze\s*["A-Za-z_]@
syntax keyword tfmType bool f32 i32
syntax keyword tfmLayer BatchNorm1d BatchNorm2d Conv1d Conv2d Decoder DecoderLayer Dropout Embedding Encoder EncoderLayer
syntax keyword tfmLayer GLU GroupNorm LayerNorm Linear MultiheadAttention PositionalEncoding RMSNorm Transformer
syntax keyword tfmFunction abs all amax amin any arange argmax avg_pool1d batch_norm binary_cross_entropy_with_logits
syntax keyword tfmFunction causal_mask ceil clamp concat contrastive_loss conv1d conv2d conv_transpose1d cos cosine_embedding_loss
syntax keyword tfmFunction cosine_similarity cross_entropy cumsum dropout dtype elu embedding erf exp expand
syntax keyword tfmFunction expm1 flip floor fmod full gather gaussian_nll_loss gelu gelu_tanh glu
syntax keyword tfmFunction group_norm hardsigmoid hardswish hinge_embedding_loss huber_loss instance_norm is_list kaiming_normal kaiming_uniform kl_div
syntax keyword tfmFunction l1_loss layer_norm leaky_relu len linear log log1p log_softmax logsigmoid logsumexp
syntax keyword tfmFunction margin_ranking_loss masked_fill max max_pool1d maximum mean mean_pooling merge_heads min minimum
syntax keyword tfmFunction mish mse_loss multiple_negatives_ranking_loss norm normal normalize one_hot pad pairwise_distance poisson_nll_loss
syntax keyword tfmFunction positions pow quick_gelu rank relu relu6 remainder reshape rms_norm roll
syntax keyword tfmFunction rotary round rsqrt selu shape sigmoid sign silu sin sinusoid
syntax keyword tfmFunction smooth_l1_loss soft_margin_loss softmax softplus split_heads sqrt stack stop_gradient sum tanh
syntax keyword tfmFunction topk transpose triplet_margin_loss trunc unfold uniform vector where xavier_normal xavier_uniform
syntax match tfmNumber "\<\d\+\%(\.\d\+\)\?\%([eE][+-]\?\d\+\)\?\>"
syntax match tfmMark "->\|\.\.\.\|\*\*\|//\|[=!<>]=\|[-+*/%@=<>×]"
syntax match tfmPlace "{\w\+}" contained
syntax region tfmString start=+"+ skip=+\\.+ end=+"+ oneline contains=tfmPlace
syntax keyword tfmTodo TODO FIXME XXX contained
syntax match tfmComment "#.*$" contains=tfmTodo,@Spell

highlight default link tfmComment Comment
highlight default link tfmConstant Constant
highlight default link tfmFunction Function
highlight default link tfmItem Structure
highlight default link tfmLayer Type
highlight default link tfmMark Operator
highlight default link tfmNumber Number
highlight default link tfmOperator Operator
highlight default link tfmPlace Special
highlight default link tfmStatement Statement
highlight default link tfmString String
highlight default link tfmTodo Todo
highlight default link tfmType Type

let b:current_syntax = 'tfm'
