package rpc

import "net/http"

func (s *Server) handler() http.Handler { return http.NotFoundHandler() }
