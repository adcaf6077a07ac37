-- The three roles of anex and its database, made once by an administrator of the server (psql 15 or newer):
--
--   OWNER_PASSWORD=… API_PASSWORD=… WORK_PASSWORD=… psql --file deploy/roles.sql "$ADMINISTRATOR_URL"
--
-- anex_owner owns the schema and runs migrations; anex_api serves requests, held to one organization by row-level
-- security; anex_work plans, runs and settles jobs of every organization. None of them may step around that security.
\set ON_ERROR_STOP on
\getenv owner_password OWNER_PASSWORD
\getenv api_password API_PASSWORD
\getenv work_password WORK_PASSWORD

CREATE ROLE anex_owner LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'owner_password';
CREATE ROLE anex_api LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'api_password';
CREATE ROLE anex_work LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'work_password';

-- An administrator who is no superuser (managed services) may give a database only to a role that it belongs to.
GRANT anex_owner TO CURRENT_USER;
CREATE DATABASE anex;
ALTER DATABASE anex OWNER TO anex_owner;
REVOKE ALL ON DATABASE anex FROM PUBLIC;
GRANT CONNECT ON DATABASE anex TO anex_api, anex_work;
\connect anex
ALTER SCHEMA public OWNER TO anex_owner;
