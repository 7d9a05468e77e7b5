# tfmc in Debian 12. In this folder: docker build -t tfmc .
# Then, in a folder with a model: docker run --rm -v "$PWD:/work" tfmc check model.tfm
FROM debian:12 AS build
RUN apt-get update -q && apt-get install -y -q --no-install-recommends make
COPY . /tfmc
RUN make -C /tfmc BUILD=/build package

FROM debian:12-slim
RUN --mount=type=bind,from=build,source=/build,target=/build apt-get update -q \
  && apt-get install -y -q --no-install-recommends /build/tfmc_*_amd64.deb && rm -rf /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["tfmc"]
