"""The edge to gRPC: generated classes, and all that turns them into nouns and back.

`v1` is generated from protos/ and used nowhere else than here, in the services and in the links. `convert` and its
neighbours turn messages into the nouns of `layerline` and back, checking them on the way; `status` does the same for
errors. `channels` is the one place for options of channels and servers, `links` the ring's streams as `layerline.link`
has them.
"""
