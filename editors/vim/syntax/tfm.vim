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
syntax match tfmItem @^\s*\zs\%(checkpoint\|expect\|ignore\|adapt\)\>\ze\s*["\[A-Za-z_]@
syntax keyword tfmType bool f32 i32
syntax keyword tfmLayer BatchNorm1d BatchNorm2d CausalConv1d Conv1d Conv2d Decoder DecoderLayer Dropout Embedding Encoder
syntax keyword tfmLayer EncoderLayer GLU GroupNorm LayerNorm Linear MultiheadAttention PositionalEncoding RMSNorm Transformer
syntax keyword tfmFunction abs activation_named all amax amin any arange argmax avg_pool1d batch_norm
syntax keyword tfmFunction binary_cross_entropy binary_cross_entropy_with_logits causal_conv1d causal_mask ceil checked clamp concat contrastive_loss conv1d
syntax keyword tfmFunction conv2d conv_transpose1d cos cosent_loss cosine_embedding_loss cosine_similarity cross_entropy cumsum dropout dtype
syntax keyword tfmFunction elu embedding erf exp expand expm1 flip floor fmod full
syntax keyword tfmFunction gather gaussian_nll_loss gelu gelu_tanh glu group_norm hardsigmoid hardswish hinge_embedding_loss huber_loss
syntax keyword tfmFunction instance_norm is_list kaiming_normal kaiming_uniform kl_div known l1_loss layer_norm leaky_relu len
syntax keyword tfmFunction linear linear_attention log log1p log_softmax logsigmoid logsumexp margin_ranking_loss masked_fill max
syntax keyword tfmFunction max_pool1d maximum mean mean_pooling merge_heads min minimum mish mse_loss multiple_negatives_ranking_loss
syntax keyword tfmFunction nll_loss norm normal normalize one_hot pad pairwise_distance poisson_nll_loss positions pow
syntax keyword tfmFunction quick_gelu rank relu relu6 remainder reshape rms_norm roll rotary round
syntax keyword tfmFunction rsqrt selu shape shift sigmoid sign silu sin sinusoid smooth_l1_loss
syntax keyword tfmFunction soft_margin_loss softmax softplus split_heads sqrt stack stop_gradient sum tanh topk
syntax keyword tfmFunction transpose triplet_margin_loss trunc unfold uniform vector where xavier_normal xavier_uniform
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
