# The image of the gateway: one static program and the system's certificate authorities, nothing else.
#   docker build -t highgate .
#   docker run -p 8080:8080 -v highgate:/var/lib/highgate highgate serve --upstream http://… --listen 0.0.0.0:8080 --insecure

# Alpine's Rust builds for musl, and so statically: the program runs in any image that copies it (examples/kubernetes).
FROM rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev protoc protobuf-dev
# The machine's own compiler, in the place of scripts/protoc, which would build one.
ENV PROTOC=/usr/bin/protoc \
    CARGO_PROFILE_RELEASE_STRIP=symbols
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin highgate
# An image without a shell cannot make folders.
RUN mkdir -p /root-fs/var/lib/highgate /root-fs/tmp && chmod 1777 /root-fs/tmp

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="highgate" \
      org.opencontainers.image.description="A fencing-token gateway: the gate that only the highest token passes" \
      org.opencontainers.image.source="https://github.com/highgate-proxy/highgate" \
      org.opencontainers.image.documentation="https://github.com/highgate-proxy/highgate/tree/main/docs" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# For https:// upstreams without an authority of their own.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /root-fs/var/lib/highgate /var/lib/highgate
# `highgate run` hands its command files here.
COPY --from=build /root-fs/tmp /tmp
COPY --from=build /src/target/release/highgate /usr/local/bin/highgate
COPY --from=build /src/LICENSE-APACHE /src/LICENSE-MIT /usr/share/licenses/highgate/
USER 65532:65532
# The marks are below ./highgate-data of this folder: mount a volume, or they go with the container.
WORKDIR /var/lib/highgate
VOLUME /var/lib/highgate
# 8080: data, 9901: admin, 9902: elections.
EXPOSE 8080 9901 9902
# Asks the admin port on loopback. With a secret of its own HIGHGATE_TOKEN_FILE has to name it, and with TLS there docker wants
# --no-healthcheck. Kubernetes does not look at this.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/local/bin/highgate", "status", "--json"]
ENTRYPOINT ["/usr/local/bin/highgate"]
CMD ["serve"]
