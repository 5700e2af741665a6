# A static binary in an image with nothing but certificates and time zones, run by a user without rights.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/gmailsync ./cmd/gmailsync \
    && mkdir /out/data

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/gmailsync /usr/local/bin/gmailsync
# A volume mounted here gets this folder's owner, so that the store can be written.
COPY --from=build --chown=nonroot:nonroot /out/data /data
USER nonroot:nonroot
WORKDIR /data
ENTRYPOINT ["/usr/local/bin/gmailsync"]
