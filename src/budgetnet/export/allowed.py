"""What a structure file may name: layers of `torch.nn`, functions and methods that compute tensors from tensors.

None of them opens a file, imports a module, or evaluates a text.
"""

from __future__ import annotations

from torch import nn


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_LAYERS = _names("""
Identity Flatten Unflatten Linear Bilinear Embedding Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
ConvTranspose3d BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm GroupNorm
RMSNorm LocalResponseNorm Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout ReLU ReLU6
LeakyReLU PReLU ELU CELU SELU GELU SiLU Mish Sigmoid Tanh Softplus Softsign Softshrink Hardshrink Hardtanh Hardswish
Hardsigmoid LogSigmoid Tanhshrink Threshold GLU Softmax Softmax2d LogSoftmax Softmin MaxPool1d MaxPool2d MaxPool3d
AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle
PixelUnshuffle ChannelShuffle Fold Unfold ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d
ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d
CircularPad2d CircularPad3d
""")
LAYERS: dict[str, type[nn.Module]] = {name: getattr(nn, name) for name in _LAYERS if hasattr(nn, name)}

OPERATORS = _names("""
add iadd sub isub mul imul truediv floordiv mod pow neg matmul getitem eq ne lt le gt ge and_ or_ invert
""")

TORCH = _names("""
abs add addmm all amax amin any arange argmax argmin baddbmm bmm bitwise_and bitwise_not bitwise_or broadcast_to cat
ceil chunk clamp clamp_max clamp_min clone concat conv1d conv2d conv3d conv_transpose1d conv_transpose2d
conv_transpose3d cos cumsum div dropout einsum embedding eq erf exp expand_as flatten flip floor floor_divide full
full_like gather ge gelu group_norm gt hardtanh index_select isinf isnan layer_norm le linspace log log1p
log_softmax logical_and logical_not logical_or lt masked_fill matmul max maximum mean min minimum mm movedim mul
narrow ne neg norm ones ones_like outer permute pixel_shuffle pixel_unshuffle pow prelu reciprocal relu remainder
repeat_interleave reshape rms_norm roll round rsqrt rsub scalar_tensor select sigmoid sign sin softmax split
split_with_sizes sqrt square squeeze stack std sub sum swapaxes t tanh tensor_split tile topk transpose tril triu
true_divide unbind unflatten unsqueeze var where zeros zeros_like batch_norm instance_norm bilinear
""")
"""Of `torch`; the operations below that have the same names are allowed too."""

FUNCTIONS = _names("""
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d alpha_dropout avg_pool1d avg_pool2d
avg_pool3d batch_norm celu conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d dropout dropout2d
dropout3d elu embedding fold gelu glu group_norm hardsigmoid hardswish hardtanh instance_norm interpolate layer_norm
leaky_relu linear local_response_norm log_softmax logsigmoid max_pool1d max_pool2d max_pool3d mish normalize one_hot
pad pixel_shuffle pixel_unshuffle prelu relu relu6 rms_norm scaled_dot_product_attention selu sigmoid silu softmax
softplus softsign tanh unfold upsample
""")
"""Of `torch.nn.functional`."""

OPERATIONS = TORCH + _names("""
_to_copy _unsafe_view adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d add_ alias
as_strided avg_pool1d avg_pool2d avg_pool3d celu col2im constant_pad_nd contiguous convolution cumprod detach
detach_ div_ elu empty_like expand feature_dropout fill glu hardsigmoid hardswish hardswish_ hardtanh_ im2col index
gru leaky_relu leaky_relu_ lift_fresh_copy linear logsumexp lstm rnn_relu rnn_tanh
masked_fill_ max_pool1d max_pool2d max_pool3d mish mul_
new_full new_ones new_zeros one_hot pad reflection_pad1d reflection_pad2d relu6 relu_ repeat replication_pad1d
replication_pad2d scaled_dot_product_attention selu silu silu_ slice softplus sub_ sym_size to type_as unfold
unsafe_split upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
upsample_nearest3d view view_as _softmax _log_softmax native_layer_norm native_group_norm
_native_batch_norm_legit_no_training _native_batch_norm_legit scatter index_put channel_shuffle bernoulli exp2 log2
addcmul addcdiv lerp
""")
"""Of `torch.ops.aten`, with all their overloads."""

METHODS = _names("""
add add_ amax amin bool chunk clamp clone contiguous cos detach div dim exp expand expand_as flatten flip float
floor index_select int long masked_fill matmul max mean min mul mul_ narrow neg new_full new_ones new_zeros numel
permute pow relu repeat reshape rsqrt select sigmoid sin size softmax split sqrt squeeze sub sum t tanh tile to
transpose type_as unbind unflatten unsqueeze view view_as
""")
"""Of tensors."""
