# SPDX-License-Identifier: Apache-2.0
# layers_cluster NODES DEVICES: writes cluster.yaml, where a layer of a pass takes
# 10 ms, whatever it has to do, and all else next to nothing.
layers_cluster()
{
    cat >cluster.yaml <<END
name: layers
kinds:
  - {name: node, nodes: $1, devices: $2, memory_gib: 8, tflops: {f32: 100000},
     memory_gbs: 100000, task_us: 0, layer_us: 10000,
     inside: {gbs: 1000, us: 0}, network: {rails: 1, gbs: 1, us: 0}}
END
}
