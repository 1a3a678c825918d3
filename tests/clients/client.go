// Go's net/http: `client BASE PROTOCOL CA` (http/1.1, h2 or h2c; `-` without TLS).
package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	token    = "7"
	stale    = "6"
	requests = 50
)

type ledger struct {
	base   string
	major  int
	client *http.Client
}

// transport speaks one protocol and no other.
func transport(protocol, authority string) *http.Transport {
	spoken := new(http.Protocols)
	switch protocol {
	case "h2":
		spoken.SetHTTP2(true)
	case "h2c":
		spoken.SetUnencryptedHTTP2(true)
	default:
		spoken.SetHTTP1(true)
	}
	made := &http.Transport{Protocols: spoken}
	if authority != "-" {
		pem, err := os.ReadFile(authority)
		if err != nil {
			panic(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		made.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return made
}

// ask returns the answer with its body read.
func (l *ledger) ask(method, path, token string, content io.Reader) (*http.Response, []byte, error) {
	request, err := http.NewRequest(method, l.base+"/"+path, content)
	if err != nil {
		return nil, nil, err
	}
	if token != "" {
		request.Header.Set("X-Fencing-Token", token)
	}
	response, err := l.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if response.ProtoMajor != l.major {
		return nil, nil, fmt.Errorf("the version is %s", response.Proto)
	}
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

func (l *ledger) echoes(content []byte) error {
	response, body, err := l.ask("POST", "write", token, bytes.NewReader(content))
	return answered(response, body, err, content)
}

func answered(response *http.Response, body []byte, err error, content []byte) error {
	if err != nil {
		return err
	}
	if response.StatusCode != 200 || !bytes.Equal(body, content) {
		return fmt.Errorf("status %d, %d bytes that are not those sent", response.StatusCode, len(body))
	}
	return nil
}

func (l *ledger) sendsChunks(content []byte) error {
	// A reader whose length is not known.
	response, body, err := l.ask("POST", "write", token, io.MultiReader(bytes.NewReader(content)))
	if err := answered(response, body, err, content); err != nil {
		return err
	}
	if framing := response.Header.Get("X-Framing"); framing != "chunked" {
		return fmt.Errorf("the framing at the origin is %s", framing)
	}
	return nil
}

func (l *ledger) isRefused(token string, status int, reason string) error {
	for _, size := range []int{1 << 10, 1 << 20} {
		if err := l.refuses(make([]byte, size), token, status, reason); err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
	}
	return nil
}

func (l *ledger) refuses(content []byte, token string, status int, reason string) error {
	response, body, err := l.ask("POST", "write", token, bytes.NewReader(content))
	if err != nil {
		return err
	}
	header := response.Header
	problem := header.Get("Content-Type") == "application/problem+json"
	if response.StatusCode != status || header.Get("X-Fencing-Reason") != reason || !problem {
		return fmt.Errorf("status %d, %v: %s", response.StatusCode, header, body)
	}
	return nil
}

func (l *ledger) reuses() error {
	for range requests {
		response, body, err := l.ask("POST", "reuse", token, bytes.NewReader([]byte("x")))
		if err := answered(response, body, err, []byte("x")); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) downloads() error {
	response, body, err := l.ask("GET", "download", "", nil)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(body)
	if len(body) != 32<<20 || hex.EncodeToString(digest[:]) != response.Header.Get("X-Sha256") {
		return fmt.Errorf("status %d, %d bytes that are not the origin's", response.StatusCode, len(body))
	}
	return nil
}

func main() {
	base, protocol, authority := os.Args[1], os.Args[2], os.Args[3]
	large := make([]byte, 1<<20)
	rand.Read(large)
	client := &http.Client{Transport: transport(protocol, authority), Timeout: time.Minute}
	l := &ledger{base: base, major: 2, client: client}
	if protocol == "http/1.1" {
		l.major = 1
	}

	failed := 0
	check := func(name string, err error) {
		if err != nil {
			failed = 1
			fmt.Printf("FAILED %s: %v\n", name, err)
			return
		}
		fmt.Println("ok", name)
	}
	check("small", l.echoes(large[:1024]))
	check("large", l.echoes(large))
	check("chunked", l.sendsChunks(large))
	check("stale", l.isRefused(stale, 412, "stale"))
	check("missing", l.isRefused("", 428, "missing"))
	check("reuse", l.reuses())
	check("download", l.downloads())
	os.Exit(failed)
}
